package probe

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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

// SetHeaders adds the manifest's headers, and to whom they leave it the kubelet's: an agent and
// that any answer will do. An empty Accept or User-Agent in the manifest sends none.
func SetHeaders(req *http.Request, agent string, headers []v1.HTTPHeader) {
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	if _, set := req.Header["User-Agent"]; !set {
		req.Header.Set("User-Agent", agent)
	}
	if accept, set := req.Header["Accept"]; !set {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept")
	}
}

// NewClient makes the client of one request of a probe or hook. Who answers is a container:
// its certificate counts for nothing, as for the kubelet, and its headers have a limit.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it names no address, Kubernetes checks none
			DisableKeepAlives:      true,                                  // a kept connection would outlive the pod
			DisableCompression:     true,                                  // the manifest says what is accepted
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: checkRedirect,
	}
}

// checkRedirect follows redirects as a kubelet does: not to another host, whose answer is for
// somebody else, and not without an end.
func checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case next.URL.Hostname() != via[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

const maxRedirects = 10

// Port finds a port that may be given by name.
func Port(port intstr.IntOrString, ports []v1.ContainerPort) (int, error) {
	if port.Type == intstr.Int {
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
