// Package proctree finds, watches and ends processes on this host by what the
// kernel says about them in /proc.
//
// A [Process] is a pid together with its start time, which never names two
// processes; [Kill] ends one with everything it started, [Process.Wait] waits
// for its end without polling. Nothing here talks to an engine, and nothing
// here works on processes of another host: the caller proves with
// [Process.InContainer] that the pid an engine reported is one of this host.
package proctree
