package plan

import (
	v1 "github.com/crishim/crishim/kuberuntime/corev1"
	"time"
)

func timestamp() *v1.Time {
	t := v1.NewTime(time.Unix(1700000000, 0))
	return &t
}
