package criconfig

import (
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
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

func (e *environment) lookup(name string) (string, bool) {
	value, ok := e.values[name]
	return value, ok
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
		value := Expand(e.Value, env.lookup)
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
		cm := set.ConfigMaps[p.Namespace+"/"+ref.Name]
		if cm == nil {
			return missing("ConfigMap", p.Namespace, ref.Name, ref.Optional)
		}
		values = cm.Data
	}
	if ref := from.SecretRef; ref != nil {
		secret := set.Secrets[p.Namespace+"/"+ref.Name]
		if secret == nil {
			return missing("Secret", p.Namespace, ref.Name, ref.Optional)
		}
		for k, v := range secret.Data {
			values[k] = string(v)
		}
	}
	for _, key := range sortedKeys(values) {
		// Keys that are no names of variables are left out, as the kubelet does.
		if name := from.Prefix + key; len(validation.IsRelaxedEnvVarName(name)) == 0 {
			e.set(name, values[key])
		}
	}
	return nil
}

func missing(kind, namespace, name string, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %s/%s not found", kind, namespace, name)
}

func valueFrom(p *v1.Pod, c *v1.Container, from *v1.EnvVarSource, set *manifest.Set, host Host, podIPs []string) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := Field(p, host, podIPs, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		of := c
		if name := from.ResourceFieldRef.ContainerName; name != "" {
			of = container(p, name)
		}
		if of == nil {
			return "", false, fmt.Errorf("no container %s", from.ResourceFieldRef.ContainerName)
		}
		value, err := Resource(of, host, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm := set.ConfigMaps[p.Namespace+"/"+ref.Name]
		if cm == nil {
			return "", false, missing("ConfigMap", p.Namespace, ref.Name, ref.Optional)
		}
		value, ok := cm.Data[ref.Key]
		return value, ok, missingKey(ok, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret := set.Secrets[p.Namespace+"/"+ref.Name]
		if secret == nil {
			return "", false, missing("Secret", p.Namespace, ref.Name, ref.Optional)
		}
		value, ok := secret.Data[ref.Key]
		return string(value), ok, missingKey(ok, ref.Key, ref.Optional)
	}
	return "", false, fmt.Errorf("no source")
}

func missingKey(found bool, key string, optional *bool) error {
	if found || optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("no key %s", key)
}

func container(p *v1.Pod, name string) *v1.Container {
	for _, c := range manifest.Containers(p) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// expandAll expands a command line with the container's variables.
func expandAll(args []string, env []*runtimeapi.KeyValue) []string {
	lookup := func(name string) (string, bool) {
		i := slices.IndexFunc(env, func(e *runtimeapi.KeyValue) bool { return e.Key == name })
		if i < 0 {
			return "", false
		}
		return string(env[i].Value), true
	}
	var out []string
	for _, a := range args {
		out = append(out, Expand(a, lookup))
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
