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

// Env resolves the variables of a container, first envFrom, then env, like the kubelet's makeEnvironmentVariables. A
// value in env can refer to earlier variables.
func Env(p *v1.Pod, c *v1.Container, set *manifest.Set, host Host, podIPs []string, files Files) ([]*runtimeapi.KeyValue, error) {
	env := []*runtimeapi.KeyValue{}
	assign := func(name string, value []byte) {
		if i := find(env, name); i >= 0 {
			env[i].Value = value
		} else {
			env = append(env, &runtimeapi.KeyValue{Key: name, Value: value})
		}
	}
	for _, from := range c.EnvFrom {
		var values map[string][]byte
		var err error
		if ref := from.ConfigMapRef; ref != nil {
			values, err = set.ConfigMap(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false), false)
		} else if ref := from.SecretRef; ref != nil {
			values, err = set.Secret(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false))
		}
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			// Like the kubelet, Env skips keys that are not valid variable names.
			if name := from.Prefix + key; len(validation.IsRelaxedEnvVarName(name)) == 0 {
				assign(name, values[key])
			}
		}
	}
	for _, e := range c.Env {
		value := expandKnown(e.Value, env)
		if e.ValueFrom != nil {
			got, found, err := valueFrom(p, c, e.ValueFrom, set, host, podIPs, files)
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", e.Name, err)
			}
			if !found {
				continue
			}
			value = got
		}
		assign(e.Name, []byte(value))
	}
	return env, nil
}

func find(env []*runtimeapi.KeyValue, name string) int {
	return slices.IndexFunc(env, func(e *runtimeapi.KeyValue) bool { return e.Key == name })
}

func valueFrom(p *v1.Pod, c *v1.Container, from *v1.EnvVarSource, set *manifest.Set, host Host, podIPs []string, files Files) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := Field(p, host, podIPs, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		of := c
		if name := from.ResourceFieldRef.ContainerName; name != "" {
			of = manifest.Container(p, name)
		}
		value, err := Resource(p, of, host, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := set.ConfigMap(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false), false)
		return valueOf(data, err, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := set.Secret(p.Namespace, ref.Name, ptr.Deref(ref.Optional, false))
		return valueOf(data, err, ref.Key, ref.Optional)
	}
	return files.value(from.FileKeyRef)
}

func valueOf(data map[string][]byte, err error, key string, optional *bool) (string, bool, error) {
	value, found := data[key]
	if err == nil && !found && !ptr.Deref(optional, false) {
		err = fmt.Errorf("no key %s", key)
	}
	return string(value), found, err
}

// expandKnown replaces $(NAME) by the value of the variable and $$ by $, like the kubelet's expansion package.
// References to unknown variables are kept.
func expandKnown(s string, env []*runtimeapi.KeyValue) string {
	out, _ := expand(s, env)
	return out
}

// ExpandAll is like expandKnown, but returns an error for an unknown variable.
func ExpandAll(s string, env []*runtimeapi.KeyValue) (string, error) {
	out, unset := expand(s, env)
	if len(unset) > 0 {
		return "", fmt.Errorf("there is no variable %s", strings.Join(unset, ", "))
	}
	return out, nil
}

func expand(s string, env []*runtimeapi.KeyValue) (expanded string, unset []string) {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String(), unset
		}
		out.WriteString(s[:i])
		s = s[i:]
		n := 2 // bytes read
		switch end := strings.IndexByte(s, ')'); {
		case s[1] == '$':
			out.WriteByte('$')
		case s[1] == '(' && end > 0:
			n = end + 1
			if i := find(env, s[2:end]); i >= 0 {
				out.Write(env[i].Value)
			} else {
				out.WriteString(s[:n])
				unset = append(unset, s[2:end])
			}
		default:
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
}

// Field returns the value of a fieldRef. podIPs are empty until the sandbox runs.
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
		return cmp.Or(p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, "default"), nil
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

// formatMap writes key="value" lines sorted by key, as in downward API volumes.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource returns the value of a resourceFieldRef in units of the divisor, rounded up. If neither the container nor
// the pod limits CPU, memory or ephemeral storage, the limit is the capacity of the host. A missing request is 0.
func Resource(p *v1.Pod, c *v1.Container, host Host, ref *v1.ResourceFieldSelector) (string, error) {
	if c == nil {
		return "", fmt.Errorf("no container %s", ref.ContainerName)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	quantity := c.Resources.Requests[v1.ResourceName(name)]
	if kind == "limits" {
		quantity = limitOf(p, c, v1.ResourceName(name))
	}
	if quantity.IsZero() && kind == "limits" {
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
	quotient := float64(quantity.Value()) / float64(divisor.Value())
	if v1.ResourceName(name) == v1.ResourceCPU {
		quotient = float64(quantity.MilliValue()) / float64(divisor.MilliValue())
	}
	return strconv.FormatInt(int64(math.Ceil(quotient)), 10), nil
}
