package client

import "github.com/crishim/crishim/internal/lazyregexp"

// RegistryFailure classifies a registry's failure to serve a pull.
type RegistryFailure int

const (
	registryOther   RegistryFailure = iota
	RegistryLimited                 // 429: rate limit
	RegistryTrouble                 // 5xx from the registry or a proxy in front of it
)

var (
	limitedPull = lazyregexp.New(`(?i)too ?many ?requests|\bHTTP( status)?:? 429\b`)
	troublePull = lazyregexp.New(`(?i)\bHTTP( status)?:? 5\d\d\b|\b(500 Internal Server Error|502 Bad Gateway|503 Service Unavailable|504 Gateway Time-?out)\b`)
)

// RegistryFailureOf finds the registry's HTTP status in an error of an engine or runtime.
func RegistryFailureOf(text string) RegistryFailure {
	switch {
	case limitedPull.MatchString(text):
		return RegistryLimited
	case troublePull.MatchString(text):
		return RegistryTrouble
	}
	return registryOther
}
