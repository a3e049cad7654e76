package manifest

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (v *validator) env(c *v1.Container, at *field.Path) {
	for i, from := range c.EnvFrom {
		here := at.Child("envFrom").Index(i)
		if from.Prefix != "" {
			v.text(here.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName)
		}
		switch {
		case from.ConfigMapRef != nil && from.SecretRef != nil, from.ConfigMapRef == nil && from.SecretRef == nil:
			v.invalid(here, "", "want one of configMapRef and secretRef")
		case from.ConfigMapRef != nil:
			v.configMap(here.Child("configMapRef", "name"), from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional), nil, nil)
		default:
			v.secret(here.Child("secretRef", "name"), from.SecretRef.Name, isTrue(from.SecretRef.Optional), nil, nil)
		}
	}
	for i, e := range c.Env {
		here := at.Child("env").Index(i)
		if v.required(here.Child("name"), e.Name) {
			v.text(here.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		}
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			v.invalid(here.Child("valueFrom"), "", "cannot be combined with value")
		}
		v.valueFrom(e.ValueFrom, here.Child("valueFrom"))
	}
}

func (v *validator) valueFrom(from *v1.EnvVarSource, at *field.Path) {
	n := 0
	if from.FieldRef != nil {
		n++
		if !isEnvField(from.FieldRef.FieldPath) {
			v.invalid(at.Child("fieldRef", "fieldPath"), from.FieldRef.FieldPath, "is no field for a variable")
		}
	}
	if from.ResourceFieldRef != nil {
		n++
		v.resourceField(at.Child("resourceFieldRef"), from.ResourceFieldRef, false)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		n++
		here := at.Child("configMapKeyRef")
		v.configMap(here.Child("name"), ref.Name, isTrue(ref.Optional), nil, nil)
		if cm := v.set.ConfigMaps[key(v.pod.Namespace, ref.Name)]; cm != nil {
			v.keyRef(here.Child("key"), ref.Key, isTrue(ref.Optional) || hasConfigKey(cm, ref.Key))
		}
	}
	if ref := from.SecretKeyRef; ref != nil {
		n++
		here := at.Child("secretKeyRef")
		v.secret(here.Child("name"), ref.Name, isTrue(ref.Optional), nil, nil)
		if secret := v.set.Secrets[key(v.pod.Namespace, ref.Name)]; secret != nil {
			_, found := secret.Data[ref.Key]
			v.keyRef(here.Child("key"), ref.Key, isTrue(ref.Optional) || found)
		}
	}
	if from.FileKeyRef != nil {
		n++
		v.errs = append(v.errs, field.Forbidden(at.Child("fileKeyRef"), "is not supported"))
	}
	if n != 1 {
		v.invalid(at, "", "has %d sources, want one", n)
	}
}

func (v *validator) keyRef(at *field.Path, key string, found bool) {
	if v.required(at, key) && !found {
		v.invalid(at, key, "there is no such key")
	}
}

func (v *validator) probe(c *v1.Container, at *field.Path, p *v1.Probe) {
	if p == nil {
		return
	}
	n := 0
	if p.Exec != nil {
		n++
		v.command(at.Child("exec", "command"), p.Exec.Command)
	}
	if p.HTTPGet != nil {
		n++
		v.httpGet(c, at.Child("httpGet"), p.HTTPGet)
	}
	if p.TCPSocket != nil {
		n++
		v.port(c, at.Child("tcpSocket", "port"), p.TCPSocket.Port.String())
	}
	if p.GRPC != nil {
		n++
		for _, msg := range validation.IsValidPortNum(int(p.GRPC.Port)) {
			v.invalid(at.Child("grpc", "port"), p.GRPC.Port, "%s", msg)
		}
		if p.GRPC.Mode != nil {
			v.errs = append(v.errs, field.Forbidden(at.Child("grpc", "mode"), "is not supported"))
		}
	}
	if n != 1 {
		v.invalid(at, "", "has %d handlers, want one of exec, httpGet, tcpSocket and grpc", n)
	}
	for name, value := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if value < 0 {
			v.invalid(at.Child(name), value, "must not be negative")
		}
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace < 1 {
		v.invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must be at least 1")
	}
}

func (v *validator) successThreshold(at *field.Path, p *v1.Probe) {
	if p != nil && p.SuccessThreshold != 1 {
		v.invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	}
}

func (v *validator) handler(c *v1.Container, at *field.Path, h *v1.LifecycleHandler) {
	if h == nil {
		return
	}
	n := 0
	if h.Exec != nil {
		n++
		v.command(at.Child("exec", "command"), h.Exec.Command)
	}
	if h.HTTPGet != nil {
		n++
		v.httpGet(c, at.Child("httpGet"), h.HTTPGet)
	}
	if h.Sleep != nil {
		n++
		if grace := *v.pod.Spec.TerminationGracePeriodSeconds; h.Sleep.Seconds < 0 || h.Sleep.Seconds > grace {
			v.invalid(at.Child("sleep", "seconds"), h.Sleep.Seconds, "must be between 0 and the terminationGracePeriodSeconds of %d", grace)
		}
	}
	if h.TCPSocket != nil {
		n++
		v.errs = append(v.errs, field.Forbidden(at.Child("tcpSocket"), "is no longer supported for hooks"))
	}
	if n != 1 {
		v.invalid(at, "", "has %d handlers, want one of exec, httpGet and sleep", n)
	}
}

func (v *validator) stopSignal(at *field.Path, signal v1.Signal) {
	if _, known := runtimeapi.Signal_value["SIGNAL_"+string(signal)]; !known || signal == "RUNTIME_DEFAULT" {
		v.invalid(at, signal, "is no signal that the CRI knows, such as SIGTERM")
	}
}

func (v *validator) command(at *field.Path, command []string) {
	if len(command) == 0 {
		v.errs = append(v.errs, field.Required(at, ""))
	}
}

func (v *validator) httpGet(c *v1.Container, at *field.Path, h *v1.HTTPGetAction) {
	oneOf(v, at.Child("scheme"), h.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	v.port(c, at.Child("port"), h.Port.String())
	for i, header := range h.HTTPHeaders {
		v.text(at.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName)
	}
}

// port is a number or the name of one of the container's ports.
func (v *validator) port(c *v1.Container, at *field.Path, value string) {
	if strings.Trim(value, "0123456789") != "" {
		for _, p := range c.Ports {
			if p.Name == value {
				return
			}
		}
		v.invalid(at, value, "the container has no port of this name")
		return
	}
	if n, err := strconv.Atoi(value); err != nil || len(validation.IsValidPortNum(n)) > 0 {
		v.invalid(at, value, "must be a port between 1 and 65535")
	}
}
