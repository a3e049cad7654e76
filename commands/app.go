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

// Groups returns the table of verbs, in the order of the help page. It builds no verb: Entry.Build runs later, and
// only for the verbs that a command line needs.
func Groups() []cli.Group {
	return []cli.Group{
		{Title: "Look", Verbs: []cli.Entry{
			verb(container.NewPs, "ps"),
			verb(pod.NewPods, "pods"),
			verb(image.NewImages, "images", "image", "img"),
			verb(image.NewHistory, "history"),
			verb(container.NewDiff, "diff"),
			verb(container.NewLogs, "logs"),
			verb(manifest.NewDescribe, "describe"),
			verb(manifest.NewWhy, "why"),
			verb(container.NewInspect, "inspect"),
			verb(pod.NewInspectp, "inspectp"),
			verb(image.NewInspecti, "inspecti"),
			verb(node.NewTop, "top"),
			verb(container.NewEvents, "events", "event"),
			verb(container.NewStats, "stats"),
			verb(pod.NewStatsp, "statsp"),
			verb(pod.NewMetricsp, "metricsp"),
			verb(pod.NewMetricDescs, "metricdescs"),
			verb(node.NewWho, "who"),
		}},
		{Title: "Act", Verbs: []cli.Entry{
			verb(container.NewExec, "exec"),
			verb(container.NewAttach, "attach"),
			verb(container.NewCp, "cp"),
			verb(pod.NewPortForward, "port-forward"),
			verb(container.NewDebug, "debug"),
			verb(container.NewWait, "wait"),
			verb(container.NewKill, "kill"),
			verb(container.NewPause, "pause"),
			verb(container.NewUnpause, "unpause"),
		}},
		{Title: "Run", Verbs: []cli.Entry{
			verb(container.NewRun, "run"),
			verb(container.NewStop, "stop"),
			verb(container.NewRestart, "restart"),
			verb(container.NewRm, "rm"),
			verb(manifest.NewApply, "apply"),
			verb(manifest.NewDelete, "delete"),
			verb(manifest.NewSync, "sync"),
			verb(manifest.NewGC, "gc"),
		}},
		{Title: "CRI steps", Verbs: []cli.Entry{
			verb(pod.NewRunp, "runp"),
			verb(container.NewCreate, "create"),
			verb(container.NewStart, "start"),
			verb(container.NewUpdate, "update"),
			verb(container.NewCheckpoint, "checkpoint"),
			verb(pod.NewStopp, "stopp"),
			verb(pod.NewRmp, "rmp"),
		}},
		{Title: "Images", Verbs: []cli.Entry{
			verb(image.NewPull, "pull"),
			verb(image.NewSave, "save"),
			verb(image.NewLoad, "load"),
			verb(image.NewRmi, "rmi"),
			verb(image.NewImagefsinfo, "imagefsinfo"),
		}},
		{Title: "Node", Verbs: []cli.Entry{
			verb(node.NewVersion, "version"),
			verb(node.NewInfo, "info"),
			verb(node.NewDf, "df"),
			verb(node.NewEndpoints, "endpoints"),
			verb(node.NewDoctor, "doctor"),
			verb(node.NewDump, "dump"),
			verb(node.NewConfig, "config"),
			verb(node.NewServe, "serve"),
			verb(node.NewRuntimeConfig, "runtime-config"),
			verb(node.NewUpdateRuntimeConfig, "update-runtime-config"),
		}},
		{Title: "Shell", Verbs: []cli.Entry{
			verb(node.NewCompletion, "completion"),
		}},
	}
}

func verb(build func(*cli.Invocation) *cli.Verb, names ...string) cli.Entry {
	return cli.Entry{Names: names, Build: build}
}
