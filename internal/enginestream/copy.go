package enginestream

import "io"

// copySize is the size of the pieces in which streams are carried. Each piece
// becomes a frame of SPDY, which costs several hand-offs between goroutines
// whatever its size.
const copySize = 128 << 10

// Copy is io.Copy with larger pieces, whatever short cuts the two have.
func Copy(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copySize))
	return err
}
