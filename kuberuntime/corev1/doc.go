// Package corev1 has the types of Pod manifests: the fields of k8s.io/api's
// core/v1 that a Pod, ConfigMap, Secret or RuntimeClass can hold.
//
// types.go is generated from k8s.io/api by hack/gentypes and leaves out its
// methods and registration, which would cost every crishim command
// milliseconds at start-up and megabytes of binary. A test compares the two.
package corev1
