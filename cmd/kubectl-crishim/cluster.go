package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/commands/cli"
)

type cluster struct {
	api       typedcorev1.CoreV1Interface
	config    *rest.Config
	namespace string // from the flags, else from the kubeconfig
}

// requestError adds verb and resource to a request's error, because a proxy in front of the API server may omit them.
func requestError(err error, verb, resource string) error {
	var unsent *url.Error // includes the whole URL
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsent):
		return fmt.Errorf("%s %s: %w", verb, resource, unsent.Err)
	case apierrors.IsForbidden(err):
		return cli.WithHint(fmt.Errorf("not allowed to %s %s: %w", verb, resource, err), "docs/kubernetes.md lists the rights that kubectl crishim needs")
	}
	return fmt.Errorf("%s %s: %w", verb, resource, err)
}

func (c *cluster) nodes(ctx context.Context, selector string) ([]string, error) {
	list, err := c.api.Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, requestError(err, "list", "nodes")
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	if slices.Sort(names); names == nil {
		return nil, fmt.Errorf("no node has the labels %s", cli.Quote(selector))
	}
	return names, nil
}

// node returns a node if it can run a pod.
func (c *cluster) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := c.api.Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		unknown := errors.New("there is no such node")
		if names, err := c.nodes(ctx, ""); err == nil {
			if best := suggest.Closest(name, names); best != "" {
				return nil, cli.WithHint(unknown, "did you mean %s?", best)
			}
			return nil, cli.WithHint(unknown, "nodes are %s", strings.Join(names[:min(len(names), 5)], ", "))
		}
		return nil, unknown
	}
	if err != nil {
		return nil, requestError(err, "get", "nodes")
	}
	if node.Status.NodeInfo.OperatingSystem == "windows" {
		return nil, errors.New("it runs Windows, and crishim does not")
	}
	return node, gone(node)
}

// gone returns an error if the node's kubelet has stopped posting its status. A node that is not ready for another reason,
// for example without a pod network, still runs pods with the host's network.
func gone(node *corev1.Node) error {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return fmt.Errorf("its kubelet is gone: %s: %s", c.Reason, strings.TrimSuffix(c.Message, "."))
		}
	}
	return nil
}

func (c *cluster) nodeOf(ctx context.Context, name string) (string, error) {
	pod, err := c.api.Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no pod %s in namespace %s", cli.Quote(name), c.namespace)
	case err != nil:
		return "", requestError(err, "get", "pods in namespace "+c.namespace)
	case pod.Spec.NodeName == "":
		return "", fmt.Errorf("pod %s/%s is on no node: %s", c.namespace, name, pendingReason(pod, nil))
	}
	return pod.Spec.NodeName, nil
}
