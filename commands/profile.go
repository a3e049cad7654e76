package commands

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiles measures a command line for --profile-cpu and --profile-mem.
type profiles struct {
	cpu    *os.File
	memory string
}

func (p *profiles) start(g globals) error {
	p.memory = g.memProfile
	if g.cpuProfile == "" {
		return nil
	}
	file, err := os.Create(g.cpuProfile)
	if err != nil {
		return fmt.Errorf("--profile-cpu: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(fmt.Errorf("--profile-cpu: %w", err), file.Close())
	}
	p.cpu = file
	return nil
}

// stop writes what was measured. It is called once, whatever became of start.
func (p *profiles) stop() error {
	var errs []error
	if p.cpu != nil {
		pprof.StopCPUProfile()
		errs = append(errs, p.cpu.Close())
	}
	if p.memory != "" {
		errs = append(errs, writeHeap(p.memory))
	}
	return join(errs...)
}

func writeHeap(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--profile-mem: %w", err)
	}
	defer func() { err = join(err, file.Close()) }()
	runtime.GC() // else the profile is of the last collection
	return pprof.WriteHeapProfile(file)
}
