package criconfig

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/kuberuntime/manifest"
)

// environment collects variables in the order in which they are first set.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, set := e.values[name]; !set {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// Env resolves a container's variables: envFrom first, then env, where a value can use
// what was set before it.
func Env(p *v1.Pod, c *v1.Container, set *manifest.Set, host Host, podIPs []string) ([]*runtimeapi.KeyValue, error) {
	env := &environment{values: map[string]string{}}
	for _, from := range c.EnvFrom {
		if err := env.from(p, from, set); err != nil {
			return nil, err
		}
	}
	for _, e := range c.Env {
		value := expand(e.Value, func(name string) (string, bool) { value, set := env.values[name]; return value, set })
		if e.ValueFrom != nil {
			got, found, err := valueFrom(p, c, e.ValueFrom, set, host, podIPs)
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", e.Name, err)
			}
			if !found {
				continue
			}
			value = got
		}
		env.set(e.Name, value)
	}
	out := make([]*runtimeapi.KeyValue, 0, len(env.names))
	for _, name := range env.names {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(env.values[name])})
	}
	return out, nil
}

func (e *environment) from(p *v1.Pod, from v1.EnvFromSource, set *manifest.Set) error {
	values := map[string]string{}
	if ref := from.ConfigMapRef; ref != nil {
		cm, err := set.ConfigMap(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false))
		if cm == nil {
			return err
		}
		values = cm.Data
	} else if ref := from.SecretRef; ref != nil {
		secret, err := set.Secret(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false))
		if secret == nil {
			return err
		}
		for k, v := range secret.Data {
			values[k] = string(v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		// Keys that are no names of variables are left out, as the kubelet does.
		if name := from.Prefix + key; len(validation.IsRelaxedEnvVarName(name)) == 0 {
			e.set(name, values[key])
		}
	}
	return nil
}

func valueFrom(p *v1.Pod, c *v1.Container, from *v1.EnvVarSource, set *manifest.Set, host Host, podIPs []string) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := Field(p, host, podIPs, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		of := c
		if name := from.ResourceFieldRef.ContainerName; name != "" {
			of = manifest.Container(p, name)
		}
		if of == nil {
			return "", false, fmt.Errorf("no container %s", from.ResourceFieldRef.ContainerName)
		}
		value, err := Resource(of, host, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := set.ConfigMap(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false))
		if cm == nil {
			return "", false, err
		}
		value, ok := cm.Data[ref.Key]
		return value, ok, missingKey(ok, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := set.Secret(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false))
		if secret == nil {
			return "", false, err
		}
		value, ok := secret.Data[ref.Key]
		return string(value), ok, missingKey(ok, ref.Key, ref.Optional)
	}
	return "", false, fmt.Errorf("no source")
}

func missingKey(found bool, key string, optional *bool) error {
	if found || ptr.Deref(optional, false) {
		return nil
	}
	return fmt.Errorf("no key %s", key)
}

// Expand replaces $(NAME) in a text by the value of a variable. $$ stands for one $, and a name
// that is no variable's stays as it is written.
func Expand(s string, env []*runtimeapi.KeyValue) string {
	return expand(s, func(name string) (string, bool) {
		i := slices.IndexFunc(env, func(e *runtimeapi.KeyValue) bool { return e.Key == name })
		if i < 0 {
			return "", false
		}
		return string(env[i].Value), true
	})
}

func expand(s string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		case '$':
			out.WriteByte('$')
			s = s[2:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				out.WriteString("$(")
				s = s[2:]
				continue
			}
			if value, known := lookup(s[2:end]); known {
				out.WriteString(value)
			} else {
				out.WriteString(s[:end+1])
			}
			s = s[end+1:]
		default:
			out.WriteString(s[:2])
			s = s[2:]
		}
	}
}

// Field is the value of a fieldRef. podIPs are known once the sandbox runs.
func Field(p *v1.Pod, host Host, podIPs []string, path string) (string, error) {
	if name, key, ok := manifest.MapField(path); ok {
		if name == "metadata.labels" {
			return p.Labels[key], nil
		}
		return p.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return formatMap(p.Labels), nil
	case "metadata.annotations":
		return formatMap(p.Annotations), nil
	case "spec.nodeName":
		return host.Name, nil
	case "spec.serviceAccountName":
		return "default", nil
	case "status.hostIP":
		return cmp.Or(host.IPs...), nil
	case "status.hostIPs":
		return strings.Join(host.IPs, ","), nil
	case "status.podIP":
		return cmp.Or(podIPs...), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("unknown field %s", path)
}

// formatMap writes key="value" lines in the order of the keys, as volumes have them.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource is the value of a resourceFieldRef, rounded up to the divisor. A limit that is
// not set is what the host has.
func Resource(c *v1.Container, host Host, ref *v1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := c.Resources.Requests
	if kind == "limits" {
		list = c.Resources.Limits
	}
	quantity, set := list[v1.ResourceName(name)]
	if !set && kind == "limits" {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU:
			quantity = *resource.NewQuantity(int64(host.CPUs), resource.DecimalSI)
		case v1.ResourceMemory:
			quantity = *resource.NewQuantity(host.Memory, resource.BinarySI)
		case v1.ResourceEphemeralStorage:
			quantity = *resource.NewQuantity(host.Storage, resource.BinarySI)
		}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if divisor.Sign() < 0 {
		return "", fmt.Errorf("divisor %s is negative", divisor.String())
	}
	if v1.ResourceName(name) == v1.ResourceCPU {
		return ceilDiv(float64(quantity.MilliValue()), float64(divisor.MilliValue())), nil
	}
	return ceilDiv(float64(quantity.Value()), float64(divisor.Value())), nil
}

func ceilDiv(a, b float64) string {
	return strconv.FormatInt(int64(math.Ceil(a/b)), 10)
}
