package manifest

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of batch/v1 and node/v1 are declared here and not imported. The generated code of both packages, and of the
// scheduling API that they import, would add 0.8 MB to the program and run at each start. A json.RawMessage holds an
// object whose fields no code reads.

type batchJob struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobSpec         `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

type jobSpec struct {
	Parallelism             *int32                `json:"parallelism"`
	Completions             *int32                `json:"completions"`
	ActiveDeadlineSeconds   *int64                `json:"activeDeadlineSeconds"`
	PodFailurePolicy        *json.RawMessage      `json:"podFailurePolicy"`
	SuccessPolicy           *json.RawMessage      `json:"successPolicy"`
	BackoffLimit            *int32                `json:"backoffLimit"`
	BackoffLimitPerIndex    *int32                `json:"backoffLimitPerIndex"`
	MaxFailedIndexes        *int32                `json:"maxFailedIndexes"`
	Selector                *metav1.LabelSelector `json:"selector"`
	ManualSelector          *bool                 `json:"manualSelector"`
	Template                v1.PodTemplateSpec    `json:"template"`
	TTLSecondsAfterFinished *int32                `json:"ttlSecondsAfterFinished"`
	CompletionMode          *string               `json:"completionMode"`
	Suspend                 *bool                 `json:"suspend"`
	PodReplacementPolicy    *string               `json:"podReplacementPolicy"`
	ManagedBy               *string               `json:"managedBy"`
	Scheduling              json.RawMessage       `json:"scheduling"`
}

type cronJob struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Schedule                string  `json:"schedule"`
		TimeZone                *string `json:"timeZone"`
		StartingDeadlineSeconds *int64  `json:"startingDeadlineSeconds"`
		ConcurrencyPolicy       string  `json:"concurrencyPolicy"`
		Suspend                 *bool   `json:"suspend"`
		JobTemplate             struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     jobSpec           `json:"spec"`
		} `json:"jobTemplate"`
		SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit"`
		FailedJobsHistoryLimit     *int32 `json:"failedJobsHistoryLimit"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// RuntimeClass is the type of node/v1. Overhead and scheduling have no effect here.
type RuntimeClass struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Handler           string `json:"handler"`
	Overhead          struct {
		PodFixed v1.ResourceList `json:"podFixed"`
	} `json:"overhead"`
	Scheduling struct {
		NodeSelector map[string]string `json:"nodeSelector"`
		Tolerations  []v1.Toleration   `json:"tolerations"`
	} `json:"scheduling"`
}
