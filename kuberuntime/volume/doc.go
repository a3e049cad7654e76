// Package volume makes the volumes of pods on this host and mounts for their containers:
// emptyDir (on disk or in memory), hostPath, configMap, secret, projected, downwardAPI, and
// image, which the container runtime itself mounts. Files of the four kinds that carry data
// change as a whole: readers see all of the old ones or all of the new ones.
package volume
