"""Addresses of the REST API, below /api/v1/."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from console.dashboard import api as dashboard
from console.dashboard import job_api, tokens
from console.dumps import api as dumps
from console.dumps.bundles_api import BundleDetail, BundleList, BundleRankStacks
from console.incidents import api as incidents
from console.incidents.why_not_api import IncidentWhyNot

urlpatterns = [
    path("session", dashboard.Session.as_view()),
    path("now", dashboard.Now.as_view()),
    path("incidents", incidents.IncidentList.as_view()),
    path("incidents/<int:number>", incidents.IncidentDetail.as_view()),
    path("incidents/<int:number>/diagnoses/<int:revision>", incidents.IncidentDiagnosis.as_view()),
    path("incidents/<int:number>/grid", incidents.IncidentGrid.as_view()),
    path("incidents/<int:number>/lanes", incidents.IncidentLanes.as_view()),
    path("incidents/<int:number>/window", incidents.IncidentWindow.as_view()),
    path("incidents/<int:number>/why-not", IncidentWhyNot.as_view()),
    path("incidents/<int:number>/dumps", dumps.IncidentDumps.as_view()),
    path("incidents/<int:number>/dumps.zip", dumps.IncidentDumpsFile.as_view()),
    path("incidents/<int:number>/stacks", dumps.IncidentStacks.as_view()),
    path("incidents/<int:number>/stacks/<int:rank>", dumps.IncidentRankStacks.as_view()),
    path("incidents/<int:number>/recorder", dumps.IncidentRecorder.as_view()),
    path("incidents/<int:number>/acknowledge", incidents.Acknowledge.as_view()),
    path("incidents/<int:number>/unacknowledge", incidents.Unacknowledge.as_view()),
    path("incidents/<int:number>/resolve", incidents.Resolve.as_view()),
    path("incidents/<int:number>/reopen", incidents.Reopen.as_view()),
    path("incidents/<int:number>/diagnose", incidents.DiagnoseAgain.as_view()),
    path("incidents/<int:number>/comments", incidents.Comment.as_view()),
    path("jobs", dashboard.JobList.as_view()),
    path("jobs/<int:job_id>", dashboard.JobDetail.as_view()),
    path("jobs/<int:job_id>/grid", dashboard.JobGrid.as_view()),
    path("jobs/<int:job_id>/settings", job_api.JobSettings.as_view()),
    path("jobs/<int:job_id>/pause", job_api.JobPause.as_view()),
    path("jobs/<int:job_id>/triggers", job_api.JobTriggers.as_view()),
    path("jobs/<int:number>/dumps", dumps.JobDumps.as_view()),
    path("jobs/<int:number>/stacks", dumps.JobStacks.as_view()),
    path("jobs/<int:number>/stacks/<int:rank>", dumps.JobRankStacks.as_view()),
    path("jobs/<int:number>/recorder", dumps.JobRecorder.as_view()),
    path("jobs/<int:job_id>/figures/throughput", dashboard.JobThroughput.as_view()),
    path("bundles", BundleList.as_view()),
    path("bundles/<slug:key>", BundleDetail.as_view()),
    path("bundles/<slug:key>/stacks/<int:rank>", BundleRankStacks.as_view()),
    path("nodes", dashboard.NodeList.as_view()),
    path("tokens", tokens.TokenList.as_view()),
    path("tokens/<int:token_id>", tokens.TokenDetail.as_view()),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    # The split view keeps its script in a file of its own: no inline script, so the page's policy holds.
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
]
