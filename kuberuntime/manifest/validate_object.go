package manifest

import (
	"encoding/json"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// objectCheck collects what is wrong with one object that pods refer to.
type objectCheck struct {
	source Source
	errs   Errors
}

func (o *objectCheck) problem(path, text string) {
	o.errs = append(o.errs, o.source.error(path, text))
}

// validateObjects checks the objects that pods refer to: a name or a key that an API
// server would not take could never be referred to there.
func (s *Set) validateObjects() Errors {
	var out Errors
	for _, id := range sortedKeys(s.ConfigMaps) {
		cm, o := s.ConfigMaps[id], &objectCheck{source: s.seen["ConfigMap "+id]}
		o.name(cm.Name)
		o.keys("data", sortedKeys(cm.Data))
		o.keys("binaryData", sortedKeys(cm.BinaryData))
		for _, key := range sortedKeys(cm.BinaryData) {
			if _, twice := cm.Data[key]; twice {
				o.problem("binaryData["+key+"]", "is in data already")
			}
		}
		out = append(out, o.errs...)
	}
	for _, id := range sortedKeys(s.Secrets) {
		secret, o := s.Secrets[id], &objectCheck{source: s.seen["Secret "+id]}
		o.name(secret.Name)
		o.keys("data", sortedKeys(secret.Data))
		o.dockerConfig(secret)
		out = append(out, o.errs...)
	}
	for _, name := range sortedKeys(s.RuntimeClasses) {
		class, o := s.RuntimeClasses[name], &objectCheck{source: s.seen["RuntimeClass "+key("default", name)]}
		o.name(class.Name)
		if class.Handler == "" {
			o.problem("handler", "required")
		} else if problems := validation.IsDNS1123Label(class.Handler); len(problems) > 0 {
			o.problem("handler", strings.Join(problems, "; "))
		}
		out = append(out, o.errs...)
	}
	return out
}

func (o *objectCheck) name(name string) {
	if name == "" {
		o.problem("metadata.name", "required")
	} else if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		o.problem("metadata.name", strings.Join(problems, "; "))
	}
}

func (o *objectCheck) keys(path string, keys []string) {
	for _, key := range keys {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			o.problem(path+"["+key+"]", strings.Join(problems, "; "))
		}
	}
}

// dockerConfig checks a pull secret without a word of what is in it.
func (o *objectCheck) dockerConfig(secret *v1.Secret) {
	wanted := map[v1.SecretType]string{v1.SecretTypeDockerConfigJson: v1.DockerConfigJsonKey, v1.SecretTypeDockercfg: v1.DockerConfigKey}[secret.Type]
	if wanted == "" {
		return
	}
	data, found := secret.Data[wanted]
	switch {
	case !found:
		o.problem("data["+wanted+"]", "required for type "+string(secret.Type))
	case !json.Valid(data):
		o.problem("data["+wanted+"]", "is not JSON")
	}
}
