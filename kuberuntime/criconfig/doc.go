// Package criconfig turns a defaulted Pod into the CRI messages that create its sandbox
// and its containers: environment, security, resources, DNS, hosts file, mounts. All of it
// is pure; what only the host knows comes in as a Host, what only the runtime knows as
// arguments.
package criconfig
