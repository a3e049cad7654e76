package api

// AnnotationTemporary marks a container that must not outlive the command that
// makes it. Where that command and the shim are one process that is killed, the next
// shim of the same user on that machine removes the container.
const AnnotationTemporary = "io.crishim.temporary"
