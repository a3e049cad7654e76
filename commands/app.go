// Package commands is crishim's command line. The verbs are in one directory per noun, with one file per verb. Package
// cli has the code that verbs share. This file lists all verbs.
package commands

import (
	"context"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/container"
	"github.com/crishim/crishim/commands/image"
	"github.com/crishim/crishim/commands/manifest"
	"github.com/crishim/crishim/commands/node"
	"github.com/crishim/crishim/commands/pod"
)

// Main runs one command line and returns the exit status (docs/exit-codes.md). args[0] is the program's name.
func Main(ctx context.Context, args []string, p *cli.Process) int {
	return cli.Run(ctx, args, p, Groups())
}

type verbs = []func(*cli.Invocation) *cli.Verb

// Groups returns the table of verbs, in the order of the help page.
func Groups() []cli.Group {
	return []cli.Group{
		{Title: "Look", Verbs: verbs{
			container.NewPs,
			pod.NewPods,
			image.NewImages,
			image.NewHistory,
			container.NewDiff,
			container.NewLogs,
			manifest.NewDescribe,
			manifest.NewWhy,
			container.NewInspect,
			pod.NewInspectp,
			image.NewInspecti,
			node.NewTop,
			container.NewEvents,
			container.NewStats,
			pod.NewStatsp,
			pod.NewMetricsp,
			pod.NewMetricDescs,
			node.NewWho,
		}},
		{Title: "Act", Verbs: verbs{
			container.NewExec,
			container.NewAttach,
			container.NewCp,
			pod.NewPortForward,
			container.NewDebug,
			container.NewWait,
			container.NewKill,
			container.NewPause,
			container.NewUnpause,
		}},
		{Title: "Run", Verbs: verbs{
			container.NewRun,
			container.NewStop,
			container.NewRestart,
			container.NewRm,
			manifest.NewApply,
			manifest.NewDelete,
			manifest.NewSync,
			manifest.NewGC,
		}},
		{Title: "CRI steps", Verbs: verbs{
			pod.NewRunp,
			container.NewCreate,
			container.NewStart,
			container.NewUpdate,
			container.NewCheckpoint,
			pod.NewStopp,
			pod.NewRmp,
		}},
		{Title: "Images", Verbs: verbs{
			image.NewPull,
			image.NewSave,
			image.NewLoad,
			image.NewRmi,
			image.NewImagefsinfo,
		}},
		{Title: "Node", Verbs: verbs{
			node.NewVersion,
			node.NewInfo,
			node.NewDf,
			node.NewEndpoints,
			node.NewDoctor,
			node.NewDump,
			node.NewConfig,
			node.NewServe,
			node.NewRuntimeConfig,
			node.NewUpdateRuntimeConfig,
		}},
		{Title: "Shell", Verbs: verbs{
			node.NewCompletion,
		}},
	}
}
