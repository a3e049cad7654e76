package bounded

import "errors"

// Budget limits the total memory or time for untrusted input that has many small parts.
type Budget struct {
	Left int64
	Of   string // description for the error, such as "16 MiB of names"
}

func (b *Budget) Take(n int64) error {
	if b.Left -= n; n < 0 || b.Left < 0 {
		b.Left = -1
		return errors.New("more than " + b.Of)
	}
	return nil
}
