package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

type kind struct {
	group, resource, name, short string
	namespaced                   bool
	make                         func() object
}

var kinds = []*kind{
	{"", "namespaces", "Namespace", "ns", false, func() object { return &v1.Namespace{} }},
	{"", "nodes", "Node", "no", false, func() object { return &v1.Node{} }},
	{"", "pods", "Pod", "po", true, func() object { return &v1.Pod{} }},
	{"", "events", "Event", "ev", true, func() object { return &v1.Event{} }},
	{"", "serviceaccounts", "ServiceAccount", "sa", true, func() object { return &v1.ServiceAccount{} }},
	{"apps", "daemonsets", "DaemonSet", "ds", true, func() object { return &appsv1.DaemonSet{} }},
	{rbacv1.GroupName, "clusterroles", "ClusterRole", "", false, func() object { return &rbacv1.ClusterRole{} }},
	{rbacv1.GroupName, "clusterrolebindings", "ClusterRoleBinding", "", false, func() object { return &rbacv1.ClusterRoleBinding{} }},
	{rbacv1.GroupName, "roles", "Role", "", true, func() object { return &rbacv1.Role{} }},
	{rbacv1.GroupName, "rolebindings", "RoleBinding", "", true, func() object { return &rbacv1.RoleBinding{} }},
}

func kindOf(resource string) *kind {
	return kinds[slices.IndexFunc(kinds, func(k *kind) bool { return k.resource == resource })]
}

func (k *kind) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: k.group, Version: "v1"}
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

type call struct {
	server          *Server
	ctx             context.Context
	w               http.ResponseWriter
	r               *http.Request
	query           url.Values
	kind            *kind
	verb            string // as in the rules of a role
	namespace, name string
}

// handler routes requests like an API server.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, k := range kinds {
		base := "/api/v1/"
		if k.group != "" {
			base = "/apis/" + k.group + "/v1/"
		}
		all := base + k.resource
		if k.namespaced {
			mux.HandleFunc("GET "+all, s.serve(k, "list", "", s.list))
			all = base + "namespaces/{namespace}/" + k.resource
		}
		create := s.create
		switch k.resource {
		case "pods":
			create = s.createPod
		case "daemonsets":
			create = s.createDaemonSet
		}
		mux.HandleFunc("GET "+all, s.serve(k, "list", "", s.list))
		mux.HandleFunc("POST "+all, s.serve(k, "create", "", create))
		mux.HandleFunc("GET "+all+"/{name}", s.serve(k, "get", "", s.get))
		mux.HandleFunc("DELETE "+all+"/{name}", s.serve(k, "delete", "", s.delete))
	}
	pods := kindOf("pods")
	// A WebSocket exec is a GET. Since Kubernetes 1.35 it also requires the right to create.
	mux.HandleFunc("/api/v1/namespaces/{namespace}/pods/{name}/exec", s.serve(pods, "create", "exec", s.exec))
	s.discovery(mux)
	return mux
}

func (s *Server) serve(k *kind, verb, sub string, do func(*call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{server: s, ctx: r.Context(), w: w, r: r, query: r.URL.Query(), kind: k, verb: verb, namespace: r.PathValue("namespace"), name: r.PathValue("name")}
		if watch := c.query.Get("watch"); verb == "list" && (watch == "true" || watch == "1") {
			c.verb = "watch"
		}
		resource := strings.TrimSuffix(k.resource+"/"+sub, "/")
		line := strings.TrimSpace(c.verb + " " + resource + " " + strings.Trim(c.namespace+"/"+c.name, "/"))
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		s.work.Add(1)
		s.requests = append(s.requests, line)
		forbidden := s.forbidden[c.verb+" "+resource] || wsstream.IsWebSocketRequest(r) && s.forbidden["get "+resource]
		s.mu.Unlock()
		defer s.work.Done()
		var err error
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			err = apierrors.NewUnauthorized("Unauthorized")
		case forbidden:
			err = c.forbidden(resource)
		default:
			err = do(c)
		}
		outcome := "ok"
		if err != nil {
			outcome = err.Error()
			c.refuse(err)
		}
		if s.o.Audit != nil {
			s.o.Audit(line + ": " + outcome)
		}
	}
}

// forbidden uses the message of an API server with roles.
func (c *call) forbidden(resource string) error {
	why := fmt.Sprintf("User %q cannot %s resource %q in API group %q", user, c.verb, resource, c.kind.group)
	if c.namespace != "" {
		why += fmt.Sprintf(" in the namespace %q", c.namespace)
	} else {
		why += " at the cluster scope"
	}
	return apierrors.NewForbidden(c.kind.groupResource(), c.name, errors.New(why))
}

func (c *call) refuse(err error) {
	var known *apierrors.StatusError
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
		known.ErrStatus.Message = err.Error()
	}
	known.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(int(known.ErrStatus.Code))
	_ = json.NewEncoder(c.w).Encode(known.ErrStatus)
}

func (c *call) read(into any) error {
	data, err := io.ReadAll(io.LimitReader(c.r.Body, 3<<20))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (c *call) answer(o runtime.Object) error {
	c.w.Header().Set("Content-Type", "application/json")
	if c.verb == "create" {
		c.w.WriteHeader(http.StatusCreated)
	}
	return json.NewEncoder(c.w).Encode(c.view(o)) // too late to report an error to the client
}

// send writes and flushes a part of a response.
func (c *call) send(part any) error {
	c.w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(c.w).Encode(part); err != nil {
		return err
	}
	c.flush()
	return nil
}

func (c *call) flush() { _ = http.NewResponseController(c.w).Flush() }

// view returns an object in the requested form: kubectl get requests tables.
func (c *call) view(o runtime.Object) any {
	if !strings.Contains(c.r.Header.Get("Accept"), "as=Table") {
		return o
	}
	columns, row := columnsOf(c.kind.resource)
	if columns == nil {
		return o
	}
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}}
	objects := []object{}
	if list, ok := o.(*metav1.List); ok {
		table.ListMeta = list.ListMeta
		for _, item := range list.Items {
			objects = append(objects, item.Object.(object))
		}
	} else if one, ok := o.(object); ok {
		objects = append(objects, one)
		table.ResourceVersion = one.GetResourceVersion()
	}
	for _, column := range columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: column, Type: "string"})
	}
	for _, o := range objects {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: row(o), Object: runtime.RawExtension{Object: o}})
	}
	return table
}

// columnsOf returns the columns for kubectl get, or nil if kubectl's own are sufficient.
func columnsOf(resource string) ([]string, func(object) []any) {
	age := func(o object) string { return duration.HumanDuration(time.Since(o.GetCreationTimestamp().Time)) }
	switch resource {
	case "nodes":
		return []string{"Name", "Status", "Age", "Container-Runtime"}, func(o object) []any {
			node := o.(*v1.Node)
			status := "NotReady"
			for _, c := range node.Status.Conditions {
				if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
					status = "Ready"
				}
			}
			return []any{node.Name, status, age(o), node.Status.NodeInfo.ContainerRuntimeVersion}
		}
	case "pods":
		return []string{"Name", "Ready", "Status", "Restarts", "Age", "Node"}, func(o object) []any {
			pod := o.(*v1.Pod)
			ready, restarts, status := 0, int32(0), string(pod.Status.Phase)
			for _, c := range pod.Status.ContainerStatuses {
				restarts += c.RestartCount
				if c.Ready {
					ready++
				}
				if c.State.Waiting != nil {
					status = c.State.Waiting.Reason
				}
			}
			if pod.DeletionTimestamp != nil {
				status = "Terminating"
			}
			return []any{pod.Name, fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers)), status, fmt.Sprint(restarts), age(o), pod.Spec.NodeName}
		}
	}
	return nil, nil
}

// discovery serves the requests that clients make first.
func (s *Server) discovery(mux *http.ServeMux) {
	serve := func(path string, value any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value)
		})
	}
	serve("/version", version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.0+crishim-test", Platform: "linux/amd64"})
	serve("/api", metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	resources := map[string]*metav1.APIResourceList{}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range kinds {
		list := resources[k.group]
		if list == nil {
			list = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: k.groupVersion().String()}
			resources[k.group] = list
			path := "/api/v1"
			if k.group != "" {
				path = "/apis/" + k.group + "/v1"
				v := metav1.GroupVersionForDiscovery{GroupVersion: k.groupVersion().String(), Version: "v1"}
				groups.Groups = append(groups.Groups, metav1.APIGroup{Name: k.group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
			}
			serve(path, list)
		}
		one := metav1.APIResource{
			Name: k.resource, SingularName: strings.ToLower(k.name), Kind: k.name, Namespaced: k.namespaced,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "watch"},
		}
		if k.short != "" {
			one.ShortNames = []string{k.short}
		}
		list.APIResources = append(list.APIResources, one)
		if k.resource == "pods" {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: "pods/exec", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"create"}})
		}
	}
	serve("/apis", groups)
	// kubectl validates new objects against this. A document without definitions accepts all.
	mux.HandleFunc("GET /openapi/v2", func(w http.ResponseWriter, _ *http.Request) {
		var info, doc []byte
		info = protowire.AppendString(protowire.AppendTag(info, 1, protowire.BytesType), "Kubernetes")
		info = protowire.AppendString(protowire.AppendTag(info, 2, protowire.BytesType), "v1")
		doc = protowire.AppendString(protowire.AppendTag(doc, 1, protowire.BytesType), "2.0")
		doc = protowire.AppendBytes(protowire.AppendTag(doc, 2, protowire.BytesType), info)
		w.Header().Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
		_, _ = w.Write(doc)
	})
}
