package manifest

import (
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Workload is an object with a template of pods.
type Workload struct {
	kind, namespace, name string

	template *v1.PodTemplateSpec
	replicas *int32                     // nil for a DaemonSet, Job or CronJob
	claims   []v1.PersistentVolumeClaim // volumeClaimTemplates of a StatefulSet
}

func (p *parser) addWorkload(src Source, kind string, object map[string]any) {
	switch kind {
	case "Deployment":
		if d := (&appsv1.Deployment{}); p.decode(src, kind, object, d) {
			p.addScaled(src, newWorkload(kind, d, &d.Spec.Template), d.Spec.Selector, d.Spec.Replicas)
		}
	case "ReplicaSet":
		if r := (&appsv1.ReplicaSet{}); p.decode(src, kind, object, r) {
			p.addScaled(src, newWorkload(kind, r, &r.Spec.Template), r.Spec.Selector, r.Spec.Replicas)
		}
	case "StatefulSet":
		if s := (&appsv1.StatefulSet{}); p.decode(src, kind, object, s) {
			w := newWorkload(kind, s, &s.Spec.Template)
			w.claims = s.Spec.VolumeClaimTemplates
			for i := range w.claims {
				p.checkClaim(src, fmt.Sprintf("spec.volumeClaimTemplates[%d].spec", i), &w.claims[i].Spec)
			}
			p.addScaled(src, w, s.Spec.Selector, s.Spec.Replicas)
		}
	case "DaemonSet":
		if d := (&appsv1.DaemonSet{}); p.decode(src, kind, object, d) {
			p.addAlways(src, newWorkload(kind, d, &d.Spec.Template), d.Spec.Selector)
		}
	case "Job":
		if j := (&batchJob{}); p.decode(src, kind, object, j) {
			p.addJob(src, "spec", newWorkload(kind, j, &j.Spec.Template), &j.Spec)
		}
	case "CronJob":
		if c := (&cronJob{}); p.decode(src, kind, object, c) {
			job := &c.Spec.JobTemplate.Spec
			if ptr.Deref(c.Spec.Suspend, false) {
				p.problem(src, "spec.suspend", suspended)
			}
			p.once = append(p.once, key(c.Namespace, c.Name))
			p.addJob(src, "spec.jobTemplate.spec", newWorkload(kind, c, &job.Template), job)
		}
	}
}

func newWorkload(kind string, owner metav1.Object, template *v1.PodTemplateSpec) *Workload {
	return &Workload{kind: kind, namespace: owner.GetNamespace(), name: owner.GetName(), template: template}
}

func (p *parser) addScaled(src Source, w *Workload, selector *metav1.LabelSelector, replicas *int32) {
	w.replicas = new(ptr.Deref(replicas, 1))
	p.addAlways(src, w, selector)
}

// addAlways adds a workload that requires restartPolicy Always.
func (p *parser) addAlways(src Source, w *Workload, selector *metav1.LabelSelector) {
	if selects, err := metav1.LabelSelectorAsSelector(selector); err != nil || selects.Empty() || !selects.Matches(labels.Set(w.template.Labels)) {
		p.problem(src, "spec.selector", "must match the labels of the template")
	}
	if policy := w.template.Spec.RestartPolicy; policy != "" && policy != v1.RestartPolicyAlways {
		p.problem(src, "spec.template.spec.restartPolicy", fmt.Sprintf("invalid %q: must be Always for a %s", policy, w.kind))
	}
	p.addPod(src, "spec.template", w)
}

const (
	defaultBackoffLimit = 6 // an API server's default for a Job
	suspended           = "nothing would run"
)

// addJob adds the only pod of a Job. With restartPolicy Never, the Job controller replaces a failed pod. Here all
// containers start again in the same pod.
func (p *parser) addJob(src Source, path string, w *Workload, job *jobSpec) {
	refuse := func(asked bool, field, why string) {
		if asked {
			p.problem(src, join(path, field), why)
		}
	}
	const one = "must be 1: a Job has one pod here"
	const controller = "needs a Job controller"
	const nonIndexed, jobController = "NonIndexed", "kubernetes.io/job-controller"
	refuse(ptr.Deref(job.Completions, 1) != 1, "completions", one)
	refuse(ptr.Deref(job.Parallelism, 1) != 1, "parallelism", one)
	refuse(ptr.Deref(job.CompletionMode, nonIndexed) != nonIndexed, "completionMode", controller)
	refuse(job.PodFailurePolicy != nil, "podFailurePolicy", controller)
	refuse(job.SuccessPolicy != nil, "successPolicy", controller)
	refuse(job.BackoffLimitPerIndex != nil, "backoffLimitPerIndex", controller)
	refuse(job.MaxFailedIndexes != nil, "maxFailedIndexes", controller)
	refuse(ptr.Deref(job.ManagedBy, jobController) != jobController, "managedBy", controller)
	limit := ptr.Deref(job.BackoffLimit, defaultBackoffLimit)
	refuse(limit < 0, "backoffLimit", "must not be negative")
	spec := &w.template.Spec
	switch spec.RestartPolicy {
	case v1.RestartPolicyOnFailure:
	case v1.RestartPolicyNever:
		if limit > 0 {
			restartAllOnFailure(spec.InitContainers)
			restartAllOnFailure(spec.Containers)
		}
	default:
		refuse(true, "template.spec.restartPolicy", "must be OnFailure or Never for a Job")
	}
	if d := job.ActiveDeadlineSeconds; d != nil {
		spec.ActiveDeadlineSeconds = new(min(*d, ptr.Deref(spec.ActiveDeadlineSeconds, *d)))
	}
	setKey(&w.template.Annotations, pod.BackoffLimitAnnotation, strconv.Itoa(int(limit)))
	setKey(&w.template.Labels, "batch.kubernetes.io/job-name", w.name)
	setKey(&w.template.Labels, "job-name", w.name) // the older label, which users still write in selectors
	refuse(ptr.Deref(job.Suspend, false), "suspend", suspended)
	p.addPod(src, path+".template", w)
}

// restartAllOnFailure adds a rule to each container without its own restart policy: a failure restarts all containers
// of the pod.
func restartAllOnFailure(containers []v1.Container) {
	failed := v1.ContainerRestartRule{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}},
	}
	for i := range containers {
		if c := &containers[i]; c.RestartPolicy == nil && len(c.RestartPolicyRules) == 0 {
			c.RestartPolicy, c.RestartPolicyRules = new(v1.ContainerRestartPolicyNever), []v1.ContainerRestartRule{failed}
		}
	}
}

func setKey(to *map[string]string, key, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = value
}

// addPod adds the first pod of a workload. replicate adds the others.
func (p *parser) addPod(src Source, path string, w *Workload) {
	if !p.checkText(src, "metadata.name", w.name, validation.IsDNS1123Subdomain) {
		return
	}
	src.Path = join(src.Path, path)
	if first := w.pod(0); p.isFirst(src, "Pod", first) {
		p.Pods = append(p.Pods, Pod{first, src, w})
	}
}

// pod returns the pod with an ordinal. The pod's owner reference names the workload.
func (w *Workload) pod(ordinal int) *v1.Pod {
	template := w.template.DeepCopy()
	one := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	one.Namespace, one.Name, one.GenerateName = w.namespace, fmt.Sprintf("%s-%d", w.name, ordinal), ""
	one.OwnerReferences = []metav1.OwnerReference{{APIVersion: kinds[w.kind], Kind: w.kind, Name: w.name, Controller: new(true)}}
	if w.kind == "StatefulSet" {
		setKey(&one.Labels, appsv1.StatefulSetPodNameLabel, one.Name)
		setKey(&one.Labels, appsv1.PodIndexLabel, strconv.Itoa(ordinal))
	}
	for _, claim := range w.claims { // each pod has its own claim, which replaces a volume of the same name
		spec := &one.Spec
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == claim.Name })
		source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + one.Name}}
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: claim.Name, VolumeSource: source})
	}
	return one
}

// replicate adds the second and further pods of workloads, up to Options.Replicas. If that option is 0, replicate
// returns the workloads with another number of replicas than 1.
func (p *parser) replicate() (scaled []string) {
	for _, first := range slices.Clone(p.Pods) {
		w := first.Workload
		if w == nil || w.replicas == nil {
			continue
		}
		if n := *w.replicas; n != 1 && p.options.Replicas == 0 {
			scaled = append(scaled, fmt.Sprintf("%s %s has %d", w.kind, key(w.namespace, w.name), n))
		}
		for i := 1; i < p.options.Replicas && len(p.problems) == 0; i++ {
			next := Pod{w.pod(i), first.Source, w}
			if err := p.objects.Take(1); err != nil {
				p.problem(first.Source, "", err.Error())
			}
			if Default(next.Pod); p.isFirst(next.Source, "Pod", next.Pod) {
				p.placeClaims(next)
				p.validate(next)
				p.Pods = append(p.Pods, next)
			}
		}
	}
	return scaled
}

// checkClaim refuses a claim with a data source and a claim for a block device.
func (p *parser) checkClaim(src Source, path string, spec *v1.PersistentVolumeClaimSpec) {
	const plugin = "needs a volume plugin"
	if ptr.Deref(spec.VolumeMode, v1.PersistentVolumeFilesystem) != v1.PersistentVolumeFilesystem {
		p.problem(src, join(path, "volumeMode"), plugin)
	}
	if spec.DataSource != nil || spec.DataSourceRef != nil {
		p.problem(src, join(path, "dataSource"), plugin)
	}
}

// placeClaims annotates a pod that uses claims with Options.VolumeDir, and collects the claims for a warning. It also
// defines the claims of a StatefulSet's pod, so that validate finds them.
func (p *parser) placeClaims(of Pod) {
	if of.Workload != nil {
		for _, template := range of.Workload.claims {
			p.claims[key(of.Namespace, template.Name+"-"+of.Name)] = true
		}
	}
	delete(of.Annotations, pod.VolumeDirAnnotation)
	for _, v := range of.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil {
			setKey(&of.Annotations, pod.VolumeDirAnnotation, p.options.VolumeDir)
			p.placed = append(p.placed, key(of.Namespace, c.ClaimName))
		}
	}
}
