// Package kuberuntime runs pods from manifests on any CRI runtime: what the kubelet's
// runtime manager does, without a cluster.
//
// New makes a Manager over connections to the CRI's services; SyncPod brings one pod to its manifest's state
// and returns, KillPod ends it, GetPodStatus reads its state, GarbageCollect removes dead
// objects. Each call does one step of a loop that the caller drives: Up until one pod
// runs or is ready, Loop for a directory of static pods with probes and restarts.
//
// The decisions are in plan, the CRI messages in criconfig, host directories in volume, probes
// in probe, manifests in manifest, keys and states in pod. There is no API server:
// the state is in the runtime and in the pods' directories, and the next step notices changes
// by other processes.
package kuberuntime
