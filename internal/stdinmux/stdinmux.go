// Package stdinmux multiplexes standard input and signals on one stream: that of standard input is the only one that an
// exec in a pod has to the process. The end of the stream is a signal, too, so that nothing goes on for a client that
// has gone. [Writer] is the client's end, [Read] the process's.
package stdinmux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// The kinds of messages. A message is its kind, the length of its content, and the content.
const (
	input = iota // content of standard input; empty at its end
	signal
)

// maxMessage is the length of the longest message.
const maxMessage = 32 << 10

// Writer writes standard input and signals to the stream. Its methods may be called at the same time.
type Writer struct {
	mu sync.Mutex
	to io.Writer
}

// NewWriter writes to the stream that Read reads.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write passes on standard input.
func (w *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(len(p), n+maxMessage)]
		if err := w.send(input, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// Close ends standard input, not the stream.
func (w *Writer) Close() error { return w.send(input, nil) }

// Signal passes on a signal.
func (w *Writer) Signal(s syscall.Signal) error { return w.send(signal, []byte{byte(s)}) }

func (w *Writer) send(kind byte, content []byte) error {
	message := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content)))
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.to.Write(append(message, content...))
	return err
}

// Read reads the stream until it ends. What is of standard input goes to stdin, which is closed at
// its end; raise gets the signals, and SIGHUP at the end of the stream.
func Read(from io.Reader, stdin io.WriteCloser, raise func(syscall.Signal)) error {
	err := read(bufio.NewReader(from), stdin, raise)
	raise(syscall.SIGHUP)
	return errors.Join(err, stdin.Close())
}

func read(from io.Reader, stdin io.WriteCloser, raise func(syscall.Signal)) error {
	content := make([]byte, maxMessage)
	for {
		var header [5]byte
		switch _, err := io.ReadFull(from, header[:]); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		kind, length := header[0], binary.BigEndian.Uint32(header[1:])
		if length > maxMessage {
			return fmt.Errorf("a message of %d bytes", length)
		}
		if _, err := io.ReadFull(from, content[:length]); err != nil {
			return err
		}
		switch {
		case kind == signal && length == 1:
			raise(syscall.Signal(content[0]))
		case kind == input && length == 0:
			stdin.Close() //nolint:errcheck // a pipe's end
		case kind == input:
			stdin.Write(content[:length]) //nolint:errcheck // the process reads no more: signals still count
		default:
			return fmt.Errorf("a message of kind %d and %d bytes", kind, length)
		}
	}
}
