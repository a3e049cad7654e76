// Command docs writes docs/commands, a page for each verb. Run it in the root of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/crishim/crishim/commands"
)

func main() {
	if err := write(filepath.Join("docs", "commands")); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range commands.Pages() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
