package client

import "github.com/crishim/crishim/internal/lazyregexp"

// PullFailure is the registry's part in a failed pull.
type PullFailure int

const (
	PullOther   PullFailure = iota
	PullLimited             // 429: too much has been pulled
	PullTrouble             // 5xx: the registry, or a proxy before it, is in trouble itself
)

var (
	limitedPull = lazyregexp.New(`(?i)too ?many ?requests|\bHTTP( status)?:? 429\b`)
	troublePull = lazyregexp.New(`(?i)\bHTTP( status)?:? 5\d\d\b|\b(500 Internal Server Error|502 Bad Gateway|503 Service Unavailable|504 Gateway Time-?out)\b`)
)

// PullFailureOf finds the registry's HTTP status in the text of an engine or runtime.
func PullFailureOf(text string) PullFailure {
	switch {
	case limitedPull.MatchString(text):
		return PullLimited
	case troublePull.MatchString(text):
		return PullTrouble
	}
	return PullOther
}
