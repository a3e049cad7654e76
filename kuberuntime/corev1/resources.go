package corev1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Cpu is the CPU in l, 0 where there is none.
func (l ResourceList) Cpu() *resource.Quantity { return l.quantity(ResourceCPU, resource.DecimalSI) }

// Memory is the memory in l, 0 where there is none.
func (l ResourceList) Memory() *resource.Quantity {
	return l.quantity(ResourceMemory, resource.BinarySI)
}

func (l ResourceList) quantity(name ResourceName, format resource.Format) *resource.Quantity {
	if q, ok := l[name]; ok {
		return &q
	}
	return &resource.Quantity{Format: format}
}

// String tells resources apart: equal ones give equal text.
func (r ResourceRequirements) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
