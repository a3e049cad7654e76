package api

// TrailerCut is the trailer of an ExecSync, of CRI or of the private service,
// that names the streams of which the answer has only the beginning.
const TrailerCut = "crishim-cut"

// HeaderHandover is the header of the answer to an Exec, of CRI or of the private
// service, that names the unix socket where the client can have the engine's
// connection instead of streams.
const HeaderHandover = "crishim-handover"
