// Command docs writes docs/commands, a page for each verb, or with -man DIRECTORY the manual pages. Both are generated
// from the help. Run it in the root of the repository.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
)

func main() {
	man := flag.String("man", "", "write the manual pages into `DIRECTORY`")
	flag.Parse()
	if err := run(*man); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(man string) error {
	if man == "" {
		dir := filepath.Join("docs", "commands")
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return write(dir, commandPages(app()))
	}
	date := time.Now()
	// Packages use the time of their sources, for reproducible builds.
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0)
	}
	return write(man, manual(app(), date))
}

// app is the table of verbs, as it is where no variable is set.
func app() *urfave.App {
	p := &cli.Process{LookupEnv: func(string) (string, bool) { return "", false }}
	return cli.NewApp(p, false, commands.Groups()).WithAllVerbs().App
}

func write(dir string, pages map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
