// Package streamcopy copies streams in large pieces. Each piece becomes a frame of SPDY, which
// costs several hand-offs between goroutines whatever its size.
package streamcopy

import "io"

// Size is that of a piece.
const Size = 128 << 10

// Copy is io.Copy with pieces of Size. Writers and readers that would copy by themselves,
// as a TCP connection does, take smaller ones and are not asked to.
func Copy(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, Size))
	return err
}
