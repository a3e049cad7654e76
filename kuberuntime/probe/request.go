package probe

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"
)

// URL joins the parts; a path may carry a query.
func URL(scheme, host string, port int, path string) *url.URL {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	u.Scheme = scheme
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	return u
}

// SetHeaders sets the manifest's headers; Host is the request's own.
func SetHeaders(req *http.Request, headers []v1.HTTPHeader) {
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
}

// Port finds a port that may be given by name.
func Port(port v1.IntOrString, ports []v1.ContainerPort) (int, error) {
	if port.Type == v1.Int {
		return port.IntValue(), nil
	}
	for _, p := range ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return n, nil
	}
	return 0, fmt.Errorf("the container has no port %q", port.StrVal)
}
