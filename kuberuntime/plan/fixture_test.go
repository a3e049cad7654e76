package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func timestamp() *metav1.Time {
	t := metav1.NewTime(time.Unix(1700000000, 0))
	return &t
}
