package kubeapi

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (s *Server) createDaemonSet(c *call) error {
	set := &appsv1.DaemonSet{}
	if err := c.read(set); err != nil {
		return err
	}
	if err := c.place(set); err != nil {
		return err
	}
	created, err := s.store.create(c.kind, set)
	if err != nil {
		return err
	}
	s.rollOut(set)
	return c.answer(created)
}

// rollOut creates the pods of a DaemonSet on all matching nodes. If it cannot create a pod, it records an event.
func (s *Server) rollOut(set *appsv1.DaemonSet) {
	template := set.Spec.Template
	for _, n := range s.o.Nodes {
		node, err := s.store.get(kindOf("nodes"), "", n.Name)
		if err != nil || !labels.SelectorFromSet(template.Spec.NodeSelector).Matches(labels.Set(node.GetLabels())) {
			continue
		}
		p := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		p.GenerateName, p.Namespace, p.Spec.NodeName = set.Name+"-", set.Namespace, n.Name
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		if _, err := s.addPod(p); err != nil {
			s.event(p, v1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
		}
	}
	s.countPods(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}}})
}

func (s *Server) podsOf(namespace string, owner *metav1.OwnerReference) []*v1.Pod {
	objects, _ := s.store.list(&selection{kind: kindOf("pods"), namespace: namespace, labels: labels.Everything(), fields: fields.Everything()})
	var pods []*v1.Pod
	for _, o := range objects {
		if by := metav1.GetControllerOf(o); by != nil && by.UID == owner.UID {
			pods = append(pods, o.(*v1.Pod))
		}
	}
	return pods
}

// countPods updates the status of the pod's DaemonSet.
func (s *Server) countPods(p *v1.Pod) {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return
	}
	set, err := s.store.get(kindOf("daemonsets"), p.Namespace, owner.Name)
	if err != nil || set.GetUID() != owner.UID {
		return
	}
	var status appsv1.DaemonSetStatus
	for _, p := range s.podsOf(p.Namespace, owner) {
		if p.DeletionTimestamp != nil {
			continue
		}
		status.DesiredNumberScheduled++
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				status.NumberReady++
			}
		}
	}
	status.CurrentNumberScheduled, status.UpdatedNumberScheduled, status.NumberAvailable = status.DesiredNumberScheduled, status.DesiredNumberScheduled, status.NumberReady
	s.store.update(kindOf("daemonsets"), set, func(o object) bool {
		set := o.(*appsv1.DaemonSet)
		status.ObservedGeneration = set.Generation
		if set.Status.NumberReady == status.NumberReady && set.Status.DesiredNumberScheduled == status.DesiredNumberScheduled {
			return false
		}
		set.Status = status
		return true
	})
}
