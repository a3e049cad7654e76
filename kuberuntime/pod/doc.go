// Package pod holds what every part of the pod runtime says about a pod: the label and
// annotation keys that the kubelet uses, the hashes that decide what has changed, and the
// state of a pod as the runtime reports it. It calls nothing.
package pod
