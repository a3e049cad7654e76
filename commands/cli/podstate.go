package cli

import "github.com/crishim/crishim/kuberuntime"

// PodState returns what sync or apply knows of a pod and its runtime does not: whether it is ready by its probes, and
// why, and until when, a container waits. It is nil for pods of others. It reads a file, and calls no runtime.
// sandboxes are the ids of those that the pod has.
func (env *Env) PodState(uid string, sandboxes ...string) *kuberuntime.PodState {
	state, err := kuberuntime.ReadState(kuberuntime.DefaultDirs(env.LookupEnv), uid, sandboxes...)
	if err != nil {
		env.Debugf("read the state of pod %s: %v", uid, err)
	}
	return state
}
