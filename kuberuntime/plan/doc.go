// Package plan decides what has to happen to a pod so that the runtime has what its
// manifest says: whether the sandbox must be made anew, which containers are killed and
// which are started, and in what order. The decisions are the kubelet's. All functions are
// pure: they see the manifest, the state and the probe results, and touch nothing.
package plan
