package cli

import (
	"fmt"
	"runtime"
	"runtime/pprof"
)

// profiles measures a command line for --profile-cpu and --profile-mem.
type profiles struct {
	cpuFile, memoryFile string // values of the flags
	cpu                 *outputFile
}

func (p *profiles) start() (err error) {
	if p.cpuFile == "" {
		return nil
	}
	if p.cpu, err = createOutput(p.cpuFile); err == nil {
		err = pprof.StartCPUProfile(p.cpu)
	}
	if err != nil {
		return fmt.Errorf("--profile-cpu: %w", err)
	}
	return nil
}

// stop writes the profiles. It is called once, even if start failed.
func (p *profiles) stop() (err error) {
	if p.cpu != nil {
		pprof.StopCPUProfile()
		err = p.cpu.Commit()
	}
	if p.memoryFile == "" {
		return err
	}
	file, createErr := createOutput(p.memoryFile)
	if createErr != nil {
		return Join(err, fmt.Errorf("--profile-mem: %w", createErr))
	}
	defer file.Close()
	runtime.GC() // otherwise the profile shows the state after the last collection
	return Join(err, pprof.WriteHeapProfile(file), file.Commit())
}
