// Package notice tells a process that it is about to lose its machine, or its life, while there is
// time to hand over what others need.
//
// Notices come as SIGTERM, which is how Kubernetes, systemd and people say it, or from the metadata
// service of the cloud, which a machine that is to be taken away asks itself:
//
//	aws    the spot instance action, with a session token (IMDSv2); asked every 5 s, two minutes before
//	gcp    the value "preempted", in one request that waits for it to change; 30 s before
//	azure  scheduled events that name this machine; asked every second, 30 s before or more
//
// No cloud is asked on a machine whose firmware does not say that it is of that cloud, unless the cloud is named.
package notice
