package kubeapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
)

// object is stored in the store. It is never modified, only replaced.
type object interface {
	runtime.Object
	metav1.Object
}

// store holds all objects and all changes since the start. A resource version is an index into the changes.
type store struct {
	mu      sync.Mutex // guards the fields below
	objects map[string]object
	changes []change
	changed chan struct{} // closed at the next change
}

type change struct {
	kind *kind
	watch.EventType
	object
}

func newStore() *store {
	return &store{objects: map[string]object{}, changed: make(chan struct{})}
}

func (k *kind) key(namespace, name string) string { return k.resource + "/" + namespace + "/" + name }

// write records a change. The caller holds the lock and must not use the object afterwards.
func (s *store) write(k *kind, event watch.EventType, o object) object {
	s.changes = append(s.changes, change{k, event, o})
	o.SetResourceVersion(strconv.Itoa(len(s.changes)))
	if key := k.key(o.GetNamespace(), o.GetName()); event == watch.Deleted {
		delete(s.objects, key)
	} else {
		s.objects[key] = o
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return o
}

// create adds an object with the metadata that an API server sets.
func (s *store) create(k *kind, o object) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + rand.String(5))
	}
	if _, exists := s.objects[k.key(o.GetNamespace(), o.GetName())]; exists {
		return nil, apierrors.NewAlreadyExists(k.groupResource(), o.GetName())
	}
	o.GetObjectKind().SetGroupVersionKind(k.groupVersion().WithKind(k.name))
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.NewTime(time.Now()))
	return s.write(k, watch.Added, o), nil
}

func (s *store) get(k *kind, namespace, name string) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[k.key(namespace, name)]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(k.groupResource(), name)
}

// update replaces an object by a copy that f has changed, unless f returns false or the object was replaced in the
// meantime.
func (s *store) update(k *kind, old object, f func(object) bool) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[k.key(old.GetNamespace(), old.GetName())]
	if o == nil || o.GetUID() != old.GetUID() {
		return nil
	}
	o = o.DeepCopyObject().(object)
	if !f(o) {
		return o
	}
	return s.write(k, watch.Modified, o)
}

func (s *store) remove(k *kind, old object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[k.key(old.GetNamespace(), old.GetName())]; o != nil && o.GetUID() == old.GetUID() {
		s.write(k, watch.Deleted, o.DeepCopyObject().(object))
	}
}

// selection selects objects for a list, watch or deletion.
type selection struct {
	kind      *kind
	namespace string // "": all namespaces
	labels    labels.Selector
	fields    fields.Selector
}

func (s *selection) takes(o object) bool {
	return (s.namespace == "" || o.GetNamespace() == s.namespace) &&
		s.labels.Matches(labels.Set(o.GetLabels())) && s.fields.Matches(fieldsOf(o))
}

func fieldsOf(o object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *v1.Pod:
		set["spec.nodeName"], set["status.phase"] = o.Spec.NodeName, string(o.Status.Phase)
	case *v1.Event:
		set["reason"], set["type"] = o.Reason, o.Type
		set["involvedObject.kind"], set["involvedObject.uid"] = o.InvolvedObject.Kind, string(o.InvolvedObject.UID)
		set["involvedObject.name"], set["involvedObject.namespace"] = o.InvolvedObject.Name, o.InvolvedObject.Namespace
	}
	return set
}

// list returns the selected objects, sorted by namespace and name, and the resource version.
func (s *store) list(sel *selection) ([]object, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[key]; strings.HasPrefix(key, sel.kind.resource+"/") && sel.takes(o) {
			out = append(out, o)
		}
	}
	return out, strconv.Itoa(len(s.changes))
}

// since returns the changes after a resource version, and a channel that is closed at the next change.
func (s *store) since(version int) ([]change, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes[min(version, len(s.changes)):], s.changed
}

func (c *call) selection() (*selection, error) {
	sel := &selection{kind: c.kind, namespace: c.namespace}
	var err error
	if sel.labels, err = labels.Parse(c.query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if sel.fields, err = fields.ParseSelector(c.query.Get("fieldSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return sel, nil
}

func (s *Server) get(c *call) error {
	o, err := s.store.get(c.kind, c.namespace, c.name)
	if err != nil {
		return err
	}
	return c.answer(o)
}

func (s *Server) list(c *call) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	if c.verb == "watch" {
		return s.watch(c, sel)
	}
	objects, version := s.store.list(sel)
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []runtime.RawExtension{}}
	list.SetGroupVersionKind(c.kind.groupVersion().WithKind(c.kind.name + "List"))
	for _, o := range objects {
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	return c.answer(list)
}

// watch sends changes until the client disconnects or the timeout.
func (s *Server) watch(c *call, sel *selection) error {
	expired := make(<-chan time.Time)
	if seconds, err := strconv.Atoi(c.query.Get("timeoutSeconds")); err == nil {
		expired = time.After(time.Duration(seconds) * time.Second)
	}
	send := func(event watch.EventType, o runtime.Object) error {
		return c.send(map[string]any{"type": event, "object": c.view(o)})
	}
	version, _ := strconv.Atoi(c.query.Get("resourceVersion"))
	if initial := c.query.Get("sendInitialEvents") == "true"; version == 0 || initial {
		objects, now := s.store.list(sel)
		for _, o := range objects {
			if err := send(watch.Added, o); err != nil {
				return nil
			}
		}
		version, _ = strconv.Atoi(now)
		if initial {
			end := c.kind.make()
			end.GetObjectKind().SetGroupVersionKind(c.kind.groupVersion().WithKind(c.kind.name))
			end.SetResourceVersion(now)
			end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			if err := send(watch.Bookmark, end); err != nil {
				return nil
			}
		}
	}
	for c.flush(); ; {
		changes, next := s.store.since(version)
		version += len(changes)
		for _, change := range changes {
			if change.kind == sel.kind && sel.takes(change.object) {
				if err := send(change.EventType, change.object); err != nil {
					return nil
				}
			}
		}
		select {
		case <-next:
		case <-expired:
			return nil
		case <-c.ctx.Done():
			return nil
		}
	}
}

// create adds an object of a kind without further effects.
func (s *Server) create(c *call) error {
	o := c.kind.make()
	if err := c.read(o); err != nil {
		return err
	}
	if err := c.place(o); err != nil {
		return err
	}
	created, err := s.store.create(c.kind, o)
	if err != nil {
		return err
	}
	return c.answer(created)
}

// place validates the name and namespace of an object.
func (c *call) place(o object) error {
	if c.kind.namespaced {
		o.SetNamespace(cmp.Or(o.GetNamespace(), c.namespace))
		if o.GetNamespace() != c.namespace {
			return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the provided object does not match the namespace sent on the request (%s)", c.namespace))
		}
		if _, err := c.server.store.get(kindOf("namespaces"), "", c.namespace); err != nil {
			return err
		}
	}
	if o.GetName() == "" && o.GetGenerateName() == "" {
		return apierrors.NewBadRequest("name or generateName is required")
	}
	return nil
}

func (s *Server) delete(c *call) error {
	o, err := c.deleteOptions()
	if err != nil {
		return err
	}
	old, err := s.store.get(c.kind, c.namespace, c.name)
	if err != nil {
		return err
	}
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != old.GetUID() {
		return apierrors.NewConflict(c.kind.groupResource(), c.name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", *o.Preconditions.UID, old.GetUID()))
	}
	return c.answer(s.deleteObject(c.kind, old, o))
}

func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if err := c.read(o); err != nil {
		return nil, err
	}
	if seconds, err := strconv.ParseInt(c.query.Get("gracePeriodSeconds"), 10, 64); err == nil {
		o.GracePeriodSeconds = &seconds
	}
	return o, nil
}

// deleteObject removes an object; for a pod, its worker does so.
func (s *Server) deleteObject(k *kind, old object, o *metav1.DeleteOptions) object {
	if pod, ok := old.(*v1.Pod); ok {
		return s.deletePod(pod, o)
	}
	s.store.remove(k, old)
	if set, ok := old.(*appsv1.DaemonSet); ok {
		for _, p := range s.podsOf(set.Namespace, metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))) {
			s.deletePod(p, o)
		}
	}
	return old
}
