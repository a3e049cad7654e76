package client

import "github.com/crishim/crishim/internal/lazyregexp"

// PullFailure classifies a registry's failure to serve a pull.
type PullFailure int

const (
	pullOther   PullFailure = iota
	PullLimited             // 429: rate limit
	PullTrouble             // 5xx from the registry or a proxy in front of it
)

var (
	limitedPull = lazyregexp.New(`(?i)too ?many ?requests|\bHTTP( status)?:? 429\b`)
	troublePull = lazyregexp.New(`(?i)\bHTTP( status)?:? 5\d\d\b|\b(500 Internal Server Error|502 Bad Gateway|503 Service Unavailable|504 Gateway Time-?out)\b`)
)

// PullFailureOf finds the registry's HTTP status in an error of an engine or runtime.
func PullFailureOf(text string) PullFailure {
	switch {
	case limitedPull.MatchString(text):
		return PullLimited
	case troublePull.MatchString(text):
		return PullTrouble
	}
	return pullOther
}
