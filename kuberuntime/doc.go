// Package kuberuntime runs pods from manifests on any CRI runtime, like the kubelet's runtime manager but without a
// cluster.
//
// New returns a Manager for connections to the CRI services. SyncPod performs the next step for a pod, KillPod stops
// it, GetPodStatus reads its state, and GarbageCollect removes dead objects. Up and Loop drive these steps: Up until
// one pod has started, is ready or has ended, and Loop for a directory of static pods with probes and restarts.
//
// The decisions are in plan, the CRI messages in criconfig, host directories in volume, probes in probe, manifests in
// manifest, annotation keys and pod states in pod. There is no API server: the state is in the runtime and in the pods'
// directories, and the next step notices changes by other processes.
package kuberuntime
