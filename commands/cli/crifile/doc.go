// Package crifile reads CRI messages that people write by hand: pod and
// container configurations in JSON or YAML.
//
// Reading is strict. A field that the message does not have is an error with
// file, line and column, and with the name that was probably meant. Field
// names may be in snake_case or camelCase, enum values are names (with or
// without the enum's prefix, in any case) or numbers, 64-bit integers may be
// quoted, and a wrapped integer may stand without its wrapper.
package crifile
