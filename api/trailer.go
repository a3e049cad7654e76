package api

// TrailerCut is the trailer of an ExecSync, of CRI or of the private service,
// that names the streams of which the answer has only the beginning.
const TrailerCut = "crishim-cut"
