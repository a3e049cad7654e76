package corev1

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DeepCopy gives a pod that shares nothing with p.
func (p *Pod) DeepCopy() *Pod { return deepCopy(p) }

// DeepCopy gives a security context that shares nothing with s.
func (s *SecurityContext) DeepCopy() *SecurityContext { return deepCopy(s) }

func deepCopy[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return copyOf(reflect.ValueOf(v)).Interface().(*T)
}

// copyOf copies v and all that it points to.
func copyOf(v reflect.Value) reflect.Value {
	switch v.Type() {
	case reflect.TypeFor[resource.Quantity]():
		return reflect.ValueOf(v.Interface().(resource.Quantity).DeepCopy())
	case reflect.TypeFor[time.Time]():
		return v
	}
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(copyOf(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(copyOf(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for _, key := range v.MapKeys() {
				out.SetMapIndex(key, copyOf(v.MapIndex(key)))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(copyOf(v.Field(i)))
		}
	default:
		out.Set(v)
	}
	return out
}
