package bounded

import "errors"

// Budget limits what untrusted input takes of memory or time in all, however many small parts it has.
type Budget struct {
	Left int64
	Of   string // the whole of it for the error: "16 MiB of names"
}

// Take takes n from the budget, and fails if there is not enough left.
func (b *Budget) Take(n int64) error {
	if b.Left -= n; n < 0 || b.Left < 0 {
		b.Left = -1
		return errors.New("more than " + b.Of)
	}
	return nil
}
