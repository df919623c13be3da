// Package hook runs the commands that a user gives for a broker which inflight did not start: how it is restarted, killed,
// cut off from its store. A file names them and says what the broker declares:
//
//	declares: [ordered-acks, durable]
//	nodes: ["10.0.0.1:1883", "10.0.0.2:1883", "10.0.0.3:1883"]   # of a cluster; the first is the target's own
//	timeout: 60s                                                 # of one command, default 60s
//	hooks:
//	  restart:    [systemctl, restart, mosquitto]
//	  kill:       [sh, -c, "systemctl kill -s KILL mosquitto; systemctl start mosquitto"]
//	  kill-node:  [ssh, "mqtt{{.Node}}", systemctl, kill, -s, KILL, broker]
//	  start-node: [ssh, "mqtt{{.Node}}", systemctl, start, broker]
//	  acl:        ["true"]   # nothing to do: it refuses already
//
// A command is a list of the program and its arguments, and no shell reads it. Each argument is a template: {{.Node}} is the
// number of the node that is meant, from 1, {{.Addr}} its address, {{.Denied}} the Topic Filter that nobody may publish to
// once acl has run. A command has failed when its exit status is not 0; it is killed, with what it has started, after the
// time-out or when the check is interrupted.
//
// What the names mean is package check's; the file is read strictly.
package hook
