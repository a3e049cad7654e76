package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotations that limit the bandwidth of a pod, in bits per second.
const (
	AnnotationIngress = "kubernetes.io/ingress-bandwidth"
	AnnotationEgress  = "kubernetes.io/egress-bandwidth"
)

// Bandwidth returns the limit in an annotation, or 0 without the annotation. As in a kubelet, the range is 1k to 1P.
func Bandwidth(annotations map[string]string, annotation string) (int64, error) {
	text, ok := annotations[annotation]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 1e3 || q.Value() > 1e15 {
		return 0, fmt.Errorf("invalid annotation %s %q: must be a quantity from 1k to 1P", annotation, text)
	}
	return q.Value(), nil
}
