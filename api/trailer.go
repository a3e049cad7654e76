package api

// TrailerCut is the trailer of an ExecSync, of CRI or of the private service,
// that names the streams of which the answer has only the beginning.
const TrailerCut = "crishim-cut"

// MetadataPods in a request for a list of containers asks the shim for
// TrailerPods, if it has no more bytes than this says: over a connection headers
// are meant to be small.
const MetadataPods = "crishim-pods"

// TrailerPods is the trailer with the sandboxes of the containers in a list, as
// far as the containers themselves tell: a ListPodSandboxResponse of CRI whose
// items have an id and metadata. It saves the question after all sandboxes.
const TrailerPods = "crishim-pods-bin"
