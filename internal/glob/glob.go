// Package glob escapes patterns for filepath.Glob and fs.Glob.
package glob

import "strings"

var escapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Escape returns a pattern that matches only this path.
func Escape(path string) string { return escapes.Replace(path) }
